"""Lets visitors log in by an OpenID provider: the authorization code flow with PKCE, a state and a nonce.

``attempt.py`` derives what a login in one browser needs, ``provider.py`` asks the provider and checks its tokens,
``requests.py`` sends bounded requests to listed URLs, and ``settings.py`` reads the file of ``--oidc``. Nothing here
knows pages or the cluster.
"""
