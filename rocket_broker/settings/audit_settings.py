"""The settings of the audit log of a broker and a name server. Apache's servers have no such log."""

# ruff: noqa: RUF009 - `setting` specifies a field, as dataclasses.field does

from dataclasses import dataclass
from pathlib import Path

from rocket_broker.settings.apache_settings import ApacheSettings, setting

__all__ = ["AuditSettings"]


@dataclass(init=False, repr=False, eq=False)
class AuditSettings(ApacheSettings):
    """The settings of the audit log, which a broker and a name server share."""

    audit_log_enable: bool | None = setting(
        None,
        "Record administrative requests, and those that access control refuses, in the audit log; default: true for a "
        "broker, and for a name server the value of aclEnable (no key of Apache's).",
        fixed=True,
    )
    audit_log_path: Path | None = setting(
        None,
        "File of the audit log; default: audit/audit.log in storePathRootDir, or beside the file of kvConfigPath. A "
        "full file is renamed to <name>.1 (no key of Apache's).",
        fixed=True,
        local="it names a file of the server",
    )
    audit_log_file_size: int = setting(
        10 * 1024 * 1024,
        "Maximum bytes of a file of the audit log (no key of Apache's).",
        minimum=64 * 1024,
        fixed=True,
    )
    audit_log_file_count: int = setting(
        10,
        "Number of files of the audit log that are kept, the newest one included (no key of Apache's).",
        minimum=2,
        maximum=1_000,
        fixed=True,
    )

    def audit_file(self, directory: Path, *, is_default: bool) -> Path | None:
        """Return the file of the audit log; None if it is off.

        Args:
            directory: The directory of the default file's directory.
            is_default: Whether the log is on unless a setting says otherwise.
        """
        is_on = is_default if self.audit_log_enable is None else self.audit_log_enable
        return (self.audit_log_path or directory / "audit" / "audit.log") if is_on else None
