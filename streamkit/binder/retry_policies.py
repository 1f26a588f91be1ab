"""How calls are tried again: by a policy that settings name, or by the numbers they give."""

from dataclasses import replace

from streamkit.binder.attempts import BackOff, RetryPolicy
from streamkit.binder.binding_settings import BindingSettings
from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.retryable import exception_classes
from streamkit.config.places import located
from streamkit.config.settings import ConsumerProperties

__all__ = ["RetryPolicies"]


class RetryPolicies:
    """The policies of one application's bindings."""

    def __init__(self, settings: BindingSettings, named: NamedObjects, default: RetryPolicy | None) -> None:
        """Make it.

        Args:
            settings: The settings of the bindings.
            named: What settings name.
            default: For the bindings that name none, in place of their settings.
        """
        self._settings = settings
        self._named = named
        self._default = default

    def of(self, name: str, properties: ConsumerProperties) -> RetryPolicy:
        """Return the policy of the binding of that name.

        Raises:
            ConfigurationError: Its settings name what there is not.
        """
        policy = self._named_policy(name, properties.retry_template_name)
        if policy is not None:
            return policy if properties.max_attempts > 1 else replace(policy, max_attempts=1)
        try:
            retryable = exception_classes(properties.retryable_exceptions)
        except LookupError as error:
            wrong = str(error).split("'")[1] if "'" in str(error) else ""
            value = self._settings.origin(name, "consumer", "retryable_exceptions", wrong)
            raise located(value, error) from error
        return RetryPolicy(
            properties.max_attempts,
            BackOff(
                properties.back_off_initial_interval.total_seconds(),
                properties.back_off_multiplier,
                properties.back_off_max_interval.total_seconds(),
            ),
            retryable,
            properties.default_retryable,
        )

    def _named_policy(self, binding: str, name: str | None) -> RetryPolicy | None:
        if name is None:
            return self._default
        try:
            return self._named.find(name, "a RetryPolicy", _retry_policy)
        except LookupError as error:
            raise located(self._settings.origin(binding, "consumer", "retry_template_name"), error) from error


def _retry_policy(found: object) -> RetryPolicy | None:
    return found if isinstance(found, RetryPolicy) else None
