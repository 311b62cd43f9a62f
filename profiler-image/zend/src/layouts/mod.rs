//! Where the engine keeps what: one [`Layout`] per X.Y, as data.
//!
//! A difference between versions is a number in a row, never a type and never an `if`. Offsets are bytes. The rows'
//! provenance stands with them. What this module does not do: guess. A version without a row is refused by name.

mod rows;

/// `zend_executor_globals` (Zend/zend_globals.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorGlobals {
    pub function_table: usize,
    pub class_table: usize,
    pub vm_stack_top: usize,
    pub vm_stack_end: usize,
    pub vm_stack: usize,
    pub current_execute_data: usize,
    pub exception_op: usize,
    pub exception_op_size: usize,
    pub opline_before_exception: usize,
}

/// `zend_execute_data` (Zend/zend_compile.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteData {
    pub opline: usize,
    pub func: usize,
    pub this: usize,
    /// `This.u1.type_info`: holds the call info, shifted by [`CallInfo::shift`].
    pub this_type_info: usize,
    pub prev_execute_data: usize,
    pub run_time_cache: usize,
    pub sizeof: usize,
}

/// Bits of `ZEND_CALL_INFO`, after the shift.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInfo {
    pub shift: u32,
    pub code: u32,
    pub top: u32,
}

/// `zend_op_array` and `zend_internal_function`, whose beginnings are `zend_function.common` (Zend/zend_compile.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub type_: usize,
    pub fn_flags: usize,
    pub function_name: usize,
    pub scope: usize,
    /// `zend_op_array` only.
    pub opcodes: usize,
    pub last: usize,
    pub filename: usize,
    pub line_start: usize,
    /// `zend_internal_function` only.
    pub handler: usize,
    /// `ZEND_ACC_CLOSURE | ZEND_ACC_FAKE_CLOSURE | ZEND_ACC_CALL_VIA_TRAMPOLINE`: the struct lives in an object or is
    /// made for one call, so its address says nothing a moment later.
    pub passing_flags: u32,
}

/// `zend_op` (Zend/zend_compile.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZendOp {
    pub op1: usize,
    pub op2: usize,
    pub result: usize,
    pub extended_value: usize,
    pub lineno: usize,
    pub opcode: usize,
    pub op1_type: usize,
    pub op2_type: usize,
    pub sizeof: usize,
}

/// `op1_type` and `op2_type` (Zend/zend_compile.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpTypes {
    pub is_const: u8,
    pub is_unused: u8,
    pub is_cv: u8,
}

/// `zend_string` (Zend/zend_types.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZendStringLayout {
    pub h: usize,
    pub len: usize,
    pub val: usize,
}

/// `zend_array` and `Bucket` (Zend/zend_types.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZendArray {
    pub ar_data: usize,
    pub n_num_used: usize,
    pub n_table_size: usize,
    pub bucket_key: usize,
    pub bucket_sizeof: usize,
    pub sizeof: usize,
}

/// `zend_class_entry` (Zend/zend.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassEntry {
    pub name: usize,
    pub parent: usize,
    pub constructor: usize,
}

/// `zend_generator` (Zend/zend_generators.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generator {
    pub execute_data: usize,
    pub node_parent: usize,
    pub execute_fake: usize,
}

/// `zend_module_entry` (Zend/zend_modules.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleEntry {
    pub zend_api: usize,
    pub zend_debug: usize,
    pub zts: usize,
    pub name: usize,
}

/// `sapi_globals_struct` (main/SAPI.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SapiGlobals {
    /// A double; 0 until someone asks for the request's time.
    pub global_request_time: u64,
}

/// One row: everything that a sample needs to know of one X.Y.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub major: u8,
    pub minor: u8,
    /// `ZEND_MODULE_API_NO`, held against the live engine's modules.
    pub module_api: u32,
    pub executor_globals: ExecutorGlobals,
    pub execute_data: ExecuteData,
    pub call_info: CallInfo,
    pub function: Function,
    pub zend_op: ZendOp,
    pub op_types: OpTypes,
    pub zend_string: ZendStringLayout,
    pub zend_array: ZendArray,
    pub class_entry: ClassEntry,
    pub generator: Generator,
    pub module_entry: ModuleEntry,
    pub sapi_globals: SapiGlobals,
    /// `ZEND_VM_STACK_HEADER_SLOTS` * sizeof(zval): where the first frame of a page lies.
    pub vm_stack_header: u64,
    /// Offset of `prev` in `zend_vm_stack`: the page before this one.
    pub vm_stack_prev: usize,
}

/// The row of a version, or `None` where there is none.
#[must_use]
pub fn layout_of(major: u8, minor: u8) -> Option<&'static Layout> {
    rows::ROWS
        .iter()
        .find(|row| (row.major, row.minor) == (major, minor))
}

/// The versions that have a row, for messages: `8.2`.
#[must_use]
pub fn known_versions() -> String {
    let names: Vec<String> = rows::ROWS
        .iter()
        .map(|row| format!("{}.{}", row.major, row.minor))
        .collect();
    names.join(", ")
}
