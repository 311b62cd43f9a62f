//! The tables of the format, as columns. Names are those of `src/types/profile.ts`.
//!
//! Invariant: all columns of a table have the same length.

use serde::Serialize;

/// `profile.shared`.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct SharedColumns {
    pub string_array: Vec<String>,
    pub sources: SourceColumns,
    pub func_table: FuncColumns,
    pub frame_table: FrameColumns,
    pub stack_table: StackColumns,
    pub resource_table: ResourceColumns,
    pub native_symbols: SymbolColumns,
}

/// The files of functions.
#[derive(Serialize, Default)]
pub(super) struct SourceColumns {
    pub length: usize,
    pub uuid: Vec<Option<&'static str>>,
    pub filename: Vec<usize>,
}

/// Functions.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct FuncColumns {
    pub length: usize,
    pub name: Vec<usize>,
    #[serde(rename = "isJS")]
    pub is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    pub relevant_for_js: Vec<bool>,
    pub resource: Vec<i8>,
    pub source: Vec<Option<usize>>,
    pub line_number: Vec<Option<i64>>,
    pub column_number: Vec<Option<u32>>,
}

/// Lines of functions.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct FrameColumns {
    pub length: usize,
    pub address: Vec<i8>,
    pub inline_depth: Vec<u8>,
    pub category: Vec<usize>,
    pub subcategory: Vec<usize>,
    pub func: Vec<usize>,
    pub native_symbol: Vec<Option<u32>>,
    #[serde(rename = "innerWindowID")]
    pub inner_window_id: Vec<Option<u32>>,
    pub line: Vec<Option<i64>>,
    pub column: Vec<Option<u32>>,
}

/// Stacks: a frame below another stack. A stack comes after its prefix.
#[derive(Serialize, Default)]
pub(super) struct StackColumns {
    pub length: usize,
    pub frame: Vec<usize>,
    pub prefix: Vec<Option<usize>>,
}

/// Always empty: for libraries and web pages.
#[derive(Serialize, Default)]
pub(super) struct ResourceColumns {
    pub length: usize,
    pub lib: [u8; 0],
    pub name: [u8; 0],
    pub host: [u8; 0],
    pub r#type: [u8; 0],
}

/// Always empty: for native code.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct SymbolColumns {
    pub length: usize,
    pub lib_index: [u8; 0],
    pub address: [u8; 0],
    pub name: [u8; 0],
    pub function_size: [u8; 0],
}

/// The samples of a thread. A sample lasts until the next one.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct SampleColumns {
    pub length: usize,
    pub stack: Vec<Option<usize>>,
    /// Milliseconds.
    pub time: Vec<f64>,
    pub weight: Vec<f64>,
    pub weight_type: &'static str,
    /// The CPU time since the previous sample, in nanoseconds.
    #[serde(rename = "threadCPUDelta", skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Vec<i64>>,
}
