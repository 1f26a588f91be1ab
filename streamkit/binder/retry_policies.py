"""The retry policies of bindings: a registered policy that settings name, or one made from the settings."""

from dataclasses import replace

from streamkit.binder.attempts import BackOff, RetryPolicy
from streamkit.binder.binding_settings import BindingSettings
from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.retryable import exception_classes
from streamkit.config.located_errors import located
from streamkit.config.settings import ConsumerProperties

__all__ = ["RetryPolicies"]


class RetryPolicies:
    """The policies of one application's bindings."""

    def __init__(self, settings: BindingSettings, named: NamedObjects, default: RetryPolicy | None) -> None:
        """Make the table of policies.

        Args:
            settings: The settings of the bindings.
            named: The registered objects, which settings name.
            default: The policy of bindings that name no policy; it replaces their settings.
        """
        self._settings = settings
        self._named = named
        self._default = default

    def of(self, name: str, properties: ConsumerProperties) -> RetryPolicy:
        """Return the policy of a binding.

        Args:
            name: The binding's name.
            properties: The binding's consumer settings.

        Raises:
            ConfigurationError: The settings name an unknown policy or exception class.
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
