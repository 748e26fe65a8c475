"""Where a call goes and which filters judge it, built when the configuration comes.

Values of `config` come in; routes with ready filters go out.
"""
