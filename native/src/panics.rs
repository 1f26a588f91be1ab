//! Panics, each of which is a defect of the core.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Returns the result of a call; a panic in it becomes a `RuntimeError`.
///
/// `PyO3` would raise a `PanicException`, which is no `Exception`: what keeps a broker's loop running after an error
/// would not catch it.
pub fn caught<T>(call: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        Err(PyRuntimeError::new_err(format!("the native core has a defect, please report it: {text}")))
    })
}
