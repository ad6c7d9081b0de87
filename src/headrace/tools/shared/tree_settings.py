"""The settings of ``headrace zookeeper``, under the names of ZooKeeper's ``zoo.cfg``.

In ``zoo.cfg`` a name that ZooKeeper does not know itself becomes the Java property ``zookeeper.NAME``. So a name may
have that prefix here, too. A setting that Headrace does not know is an error, because it may be one that protects.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.properties import ConfigError

SUPER_DIGEST = "DigestAuthenticationProvider.superDigest"

#: Each setting, and what it does.
SETTINGS = {
    SUPER_DIGEST: "the super user, USER:BASE64-OF-SHA1(USER:PASSWORD)",
}
#: Settings of servers that have nothing to do with who may do what.
IGNORED = (
    "4lw.commands.whitelist", "admin.enableServer", "admin.serverPort", "autopurge.purgeInterval",
    "autopurge.snapRetainCount", "dataLogDir", "forceSync", "initLimit", "snapCount", "syncLimit",
)  # fmt: skip
_PREFIX = "zookeeper."


def checked_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings without the prefix, and without those that are ignored.

    :raises ConfigError: if a setting is unknown.
    """
    settings = {name.removeprefix(_PREFIX): value.strip() for name, value in properties.items()}
    unknown = [name for name in settings if name not in SETTINGS and name not in IGNORED]
    if unknown:
        raise ConfigError(
            [f"{', '.join(unknown)}: not a setting of headrace zookeeper; it has {', '.join(sorted(SETTINGS))}"]
        )
    super_digest = settings.get(SUPER_DIGEST)
    if super_digest and not all(super_digest.partition(":")):
        raise ConfigError(f"{SUPER_DIGEST} is not USER:HASH")
    return {name: value for name, value in settings.items() if name in SETTINGS and value}
