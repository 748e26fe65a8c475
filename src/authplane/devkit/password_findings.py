"""What `authplane validate` says about passwords: users that no server will accept, and checks that end too soon."""

from collections.abc import Iterator
from dataclasses import replace

from authplane.authserver.backends.htpasswd.user_secrets import ALL_SECRETS, parse_user_secrets
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problem, Severity
from authplane.resources.documents import Finding, Resources
from authplane.resources.kinds.contour_policies import Authorization
from authplane.resources.kinds.extension_service import ExtensionService
from authplane.sources.document_versions import Loaded


def password_findings(loaded: Loaded) -> Iterator[Finding]:
    """Return warnings, because the gateway serves such a folder: a user or a check fails closed."""
    _, problems = parse_user_secrets(loaded.resources.secrets.values(), ALL_SECRETS)
    for ref, problem in problems:
        yield _warning(loaded, ref, problem)
    for name, extension in loaded.resources.extension_services.items():
        service = _password_service(extension, loaded.resources)
        if service is not None and _waits_default(name, extension, loaded.resources):
            message = (
                f"The AuthorizationService {service} checks passwords, but Envoy waits only 200 ms for a"
                " check. If bcrypt takes longer, Envoy answers 403. Set timeoutPolicy.response to a"
                " longer time, such as 5s."
            )
            problem = Problem(("spec",), "ResponseTimeoutShort", message)
            yield _warning(loaded, Ref("ExtensionService", name.namespace, name.name), problem)


def _warning(loaded: Loaded, ref: Ref, problem: Problem) -> Finding:
    return Finding(loaded.place(ref, problem.path), ref, replace(problem, severity=Severity.WARNING))


def _password_service(extension: ExtensionService, resources: Resources) -> ObjectName | None:
    """Return the AuthorizationService for passwords that has the name of an ExtensionService, or of its Service.

    Nothing else connects them: the address of an authorization service is an option of the program.
    """
    namespace = extension.metadata.namespace
    names = (extension.metadata.name, *(each.name for each in extension.spec.services))
    for name in (ObjectName(namespace, each) for each in names):
        found = resources.authorization_services.get(name)
        if found is not None and any(each.htpasswd is not None for each in found.spec.backends):
            return name
    return None


def _waits_default(name: ObjectName, extension: ExtensionService, resources: Resources) -> bool:
    """Tell whether a check through an ExtensionService waits as long as Envoy does by default."""
    if extension.spec.timeout_policy.response:
        return False
    uses = [each for each, namespace in _authorizations(resources) if _extension(each, namespace) == name]
    return not uses or any(not each.response_timeout for each in uses)


def _authorizations(resources: Resources) -> Iterator[tuple[Authorization, str]]:
    """Return every block that names an ExtensionService, with the namespace that applies if it names none."""
    for proxy in resources.proxies.values():
        if proxy.spec.virtualhost is not None and proxy.spec.virtualhost.authorization is not None:
            yield proxy.spec.virtualhost.authorization, proxy.metadata.namespace
    settings = [each.spec.global_ext_auth for each in resources.contour_files.values()]
    if resources.contour_configuration is not None:
        settings.append(resources.contour_configuration.spec.global_ext_auth)
    for each in settings:
        if each is not None:
            yield each, "default"


def _extension(written: Authorization, namespace: str) -> ObjectName:
    return ObjectName(written.extension_ref.namespace or namespace, written.extension_ref.name)
