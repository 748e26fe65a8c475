"""How large a challenge may be."""

from authplane.policy.mcp.challenge import Challenge, NoToken, render_challenge

FRAME = 'Bearer realm="a", scope=""'


def challenge(size: int) -> str:
    """Render a challenge of so many characters, if it names its scopes."""
    full, rest = divmod(size - len(FRAME), 50)
    scopes = [f"{number:049}" for number in range(full)] + ["s" * rest]
    return render_challenge(Challenge(realm="a", resource_metadata="", scopes=tuple(scopes)), NoToken())


def test_a_challenge_of_4096_characters_names_its_scopes_and_a_longer_one_none() -> None:
    assert len(challenge(4095)) == 4095
    assert len(challenge(4096)) == 4096
    assert challenge(4097) == 'Bearer realm="a"'
