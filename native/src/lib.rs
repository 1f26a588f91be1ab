//! The native core of the broker and its clients: code that only handles bytes, and decides nothing.
//!
//! A function takes what is usual, and returns `None` for all else: Python code handles that, and finds the errors
//! in it. So each rule is written once, in Python, and brokers and clients without this module do the same.
//!
//! The input comes from strangers: lengths are checked before they are used, and the only unsafe code is in `memory`.

mod batch;
mod columns;
mod header;
mod index;
mod java_hash;
mod log_block;
mod lone_sends;
mod memory;
mod panics;
mod properties;
mod pulled;
mod queue;
mod record;
mod sends;
mod state;
mod stored_record;

use pyo3::prelude::*;

/// Number of this interface; `rocket_remoting.native` uses no module with another one.
const INTERFACE: u32 = 12;

#[pymodule]
fn rocket_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<batch::PlainBatch>()?;
    module.add_class::<record::Run>()?;
    module.add_class::<log_block::LogReader>()?;
    module.add_class::<log_block::LogBlock>()?;
    module.add_class::<sends::PlainSends>()?;
    module.add_class::<sends::AnswerTemplate>()?;
    module.add_class::<sends::SendReader>()?;
    module.add_class::<lone_sends::LoneSends>()?;
    module.add_class::<state::FileState>()?;
    module.add_class::<state::LogState>()?;
    module.add_class::<state::QueueState>()?;
    module.add_class::<state::IndexState>()?;
    module.add_function(wrap_pyfunction!(batch::read_batch, module)?)?;
    module.add_function(wrap_pyfunction!(batch::part_bounds, module)?)?;
    module.add_function(wrap_pyfunction!(columns::read_columns, module)?)?;
    module.add_function(wrap_pyfunction!(queue::read_records, module)?)?;
    module.add_function(wrap_pyfunction!(pulled::read_messages, module)?)
}
