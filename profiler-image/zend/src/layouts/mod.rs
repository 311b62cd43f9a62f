//! The offsets of the engine's fields: one [`Layout`] per X.Y and machine, as data.
//!
//! A difference between versions is a number in a row, never a type and never an `if` on a version.
//! Offsets are bytes. The rows are generated from `php-abi.json`, which has their provenance
//! (docs/adding-a-php-version.md). Thread-safe builds differ in no field named here. What this
//! module does not do: guess. A version without a row is refused by its number.

// A field without a comment is the offset of the engine's field of that name, in the header that
// its struct names; that header documents it.
#![allow(missing_docs)]

mod rows;

pub use rows::ROWS;

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
    /// A table of the classes that are being autoloaded; 0 if the version has none.
    pub in_autoload: usize,
    /// A `zend_array`, not a pointer to one.
    pub symbol_table: usize,
    pub active: usize,
    /// 0 if the version has none.
    pub flags: usize,
    /// A zval: the callable of `set_error_handler`; undefined while that runs
    /// (`zend_error_impl`, Zend/zend.c).
    pub user_error_handler: usize,
    /// In `objects_store`, like the two that follow: a pointer to the table of objects.
    pub object_buckets: usize,
    /// How many of its places were ever used, and then how many it has: 32 bits each.
    pub objects_top: usize,
    pub objects_size: usize,
}

/// `zend_compiler_globals` (Zend/zend_globals.h). Its tables exist from the start; the first
/// request sets the executor's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerGlobals {
    pub function_table: usize,
    pub class_table: usize,
    pub in_compilation: usize,
    /// The base of offsets in a `ZEND_MAP_PTR`; 0 if the version has none.
    pub map_ptr_base: usize,
    /// A pointer to the `zend_arena` from which the compiler takes op_arrays; 0 before 8.1, where
    /// nothing needs it.
    pub arena: usize,
}

/// `php_core_globals` (main/php_globals.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreGlobals {
    pub during_request_startup: usize,
    /// Zvals, from which `$_POST`, `$_GET`, `$_COOKIE`, `$_SERVER`, … are made.
    pub http_globals: usize,
}

/// `struct _fcgi_request` and `fcgi_hash_bucket` (main/fastcgi.c); all 0 if they were not measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FcgiRequest {
    pub has_env: usize,
    /// A hash table of the request's parameters: it begins with 128 pointers to buckets.
    pub env: usize,
    /// An offset in a bucket, like all that follow.
    pub hash_value: usize,
    pub var_len: usize,
    pub var: usize,
    pub val_len: usize,
    pub val: usize,
    pub next: usize,
    pub sizeof: usize,
}

/// `zend_gc_globals` (Zend/zend_gc.h, from 7.3 on Zend/zend_gc.c).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcGlobals {
    pub gc_enabled: usize,
    pub gc_active: usize,
}

/// `zend_mm_heap` (Zend/zend_alloc.c). It begins with `use_custom_heap`, an `int`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MmHeap {
    pub size: usize,
    pub peak: usize,
    pub real_size: usize,
    pub real_peak: usize,
    /// Later fields have moved within a version: see `tail_moved`.
    pub limit: usize,
    /// 30 heads of lists of free elements, whose first word is the next one.
    pub free_slot: usize,
    pub huge_list: usize,
    /// This and all later fields are 0 if the version's numbers are not known.
    pub main_chunk: usize,
    pub cached_chunks: usize,
    pub chunks_count: usize,
    pub cached_chunks_count: usize,
    pub sizeof: usize,
    /// In the other form that some releases of the version have: how much further `huge_list` and
    /// the fields after it are.
    pub tail_moved: usize,
    /// The size of that other form; 0 if no release has one.
    pub sizeof_other: usize,
}

/// `zend_mm_chunk` (Zend/zend_alloc.c). It begins with a pointer to its heap. The main chunk has
/// the heap in its `heap_slot`; after that slot come `free_map`, a bit for each page, and `map`, 32
/// bits for each page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MmChunk {
    pub next: usize,
    pub free_pages: usize,
    pub heap_slot: usize,
}

/// `zend_mm_huge_list` (Zend/zend_alloc.c), an element of the heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MmHugeList {
    pub ptr: usize,
    pub size: usize,
    pub next: usize,
}

/// `zend_execute_data` (Zend/zend_compile.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteData {
    pub opline: usize,
    pub func: usize,
    pub this: usize,
    /// `This.u1.type_info`: contains the call info, shifted by [`CallInfo::shift`].
    pub this_type_info: usize,
    pub prev_execute_data: usize,
    /// In a generator's frame: the `zend_generator`.
    pub return_value: usize,
    pub run_time_cache: usize,
    pub sizeof: usize,
    /// `ZEND_CALL_FRAME_SLOT` * sizeof(zval): the offset of the first argument.
    pub first_argument: usize,
}

/// Bits of `ZEND_CALL_INFO`, after the shift.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInfo {
    pub shift: u32,
    pub code: u32,
    pub top: u32,
    pub closure: u32,
    /// The closure of a function that is not one: `strlen(...)`.
    pub fake_closure: u32,
    /// The frame of a generator, which is on the heap; 0 in 7.0, which has no such flag.
    pub generator: u32,
}

/// `zend_op_array` and `zend_internal_function`, whose beginnings are `zend_function.common`
/// (Zend/zend_compile.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionLayout {
    pub type_: usize,
    pub fn_flags: usize,
    pub function_name: usize,
    pub scope: usize,
    /// `zend_op_array` only.
    pub opcodes: usize,
    pub last: usize,
    pub filename: usize,
    pub line_start: usize,
    pub literals: usize,
    /// A pointer up to 7.3, then a `ZEND_MAP_PTR`.
    pub run_time_cache: usize,
    /// The number of its variables; their zvals are the first in its frames.
    pub last_var: usize,
    /// A pointer to a `zend_array`: the values of a function that was not called yet, up to 7.3 of
    /// each.
    pub static_variables: usize,
    /// A `ZEND_MAP_PTR` to the same of one that was called; 0 up to 7.3.
    pub static_variables_ptr: usize,
    /// The number of functions that it declares, such as its closures; 0 before 8.1, which has no
    /// such list.
    pub num_dynamic_func_defs: usize,
    pub dynamic_func_defs: usize,
    /// `zend_internal_function` only.
    pub handler: usize,
    pub module: usize,
    /// `ZEND_ACC_CLOSURE | ZEND_ACC_FAKE_CLOSURE | ZEND_ACC_CALL_VIA_TRAMPOLINE`: the struct is in
    /// an object or made for one call, so its address identifies nothing a moment later.
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
    pub flags: usize,
    /// `HASH_FLAG_PACKED`: such an array has no string keys.
    pub packed: u32,
    pub n_table_mask: usize,
    pub ar_data: usize,
    pub n_num_used: usize,
    pub n_num_of_elements: usize,
    pub n_table_size: usize,
    pub bucket_h: usize,
    pub bucket_key: usize,
    pub bucket_sizeof: usize,
    /// `Bucket.val.u2.next`.
    pub bucket_next: usize,
    /// The type of a zval that points to another one.
    pub is_indirect: u8,
    pub sizeof: usize,
}

/// `zend_class_entry` (Zend/zend.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassEntry {
    pub name: usize,
    pub parent: usize,
    pub constructor: usize,
    pub function_table: usize,
    pub ce_flags: usize,
    /// `ZEND_ACC_ANON_CLASS`.
    pub anonymous: u32,
    /// `ZEND_ACC_ENUM`; 0 before 8.1, which has no enums.
    pub enumeration: u32,
    /// A byte: `ZEND_INTERNAL_CLASS` or `ZEND_USER_CLASS`.
    pub type_: usize,
    /// `info.user.line_start`.
    pub line_start: usize,
    /// 32 bits, like the next one.
    pub default_properties_count: usize,
    pub default_static_members_count: usize,
    /// The pointer after it is `static_members_table`: to zvals up to 7.3, then a `ZEND_MAP_PTR`.
    pub default_static_members_table: usize,
    /// A `zend_array`, not a pointer to one: `zend_property_info`s by name.
    pub properties_info: usize,
    /// `ZEND_ACC_STATIC`, in the flags of a `zend_property_info`.
    pub static_member: u32,
}

/// `zend_object` (Zend/zend_types.h). It begins with a `zend_refcounted_h`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZendObject {
    /// Its place in the table of objects: 32 bits.
    pub handle: usize,
    pub ce: usize,
    /// A pointer to a `zend_array` with the dynamic properties, or with all; 0 if there is none.
    pub properties: usize,
    /// The zvals of the declared properties.
    pub properties_table: usize,
}

/// `zend_closure` (Zend/zend_closures.c). It begins with a `zend_object`; its function follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZendClosure {
    /// A zval; 0 if no header or source was compiled for the version.
    pub this_ptr: usize,
}

/// `zend_fiber` (Zend/zend_fibers.h). It begins with a `zend_object`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZendFiber {
    /// `context.kind`: once it was started, its class.
    pub kind: usize,
    /// `context.status`: 32 bits.
    pub status: usize,
    /// The context of the fiber that has started or resumed it; NULL while it is suspended.
    pub caller: usize,
    /// The top frame while it is suspended.
    pub execute_data: usize,
    /// The frame without a name at the bottom.
    pub stack_bottom: usize,
    pub sizeof: usize,
}

/// `zend_generator` (Zend/zend_generators.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generator {
    pub execute_data: usize,
    pub node_parent: usize,
    pub node_children: usize,
    /// `node.ptr`: the root of a leaf, the leaf of another node.
    pub node_ptr: usize,
    pub execute_fake: usize,
    pub flags: usize,
}

impl Generator {
    /// How many bytes have all these fields; `execute_fake` is followed only up to its
    /// `prev_execute_data`, which is before the flags.
    #[must_use]
    pub fn size(&self) -> usize {
        let half = size_of::<u32>();
        let last_half = self.flags.max(self.node_children) + half;
        last_half.max(self.node_ptr + 8)
    }
}

/// `zend_module_entry` (Zend/zend_modules.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleEntry {
    pub zend_api: usize,
    pub zend_debug: usize,
    pub zts: usize,
    pub name: usize,
    pub version: usize,
}

/// `sapi_globals_struct` (main/SAPI.h).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SapiGlobals {
    /// Of the SAPI itself: under php-fpm the `fcgi_request`.
    pub server_context: usize,
    /// In `request_info`, like the two that follow: pointers to C strings.
    pub request_method: usize,
    /// The primary script's file.
    pub path_translated: usize,
    pub request_uri: usize,
    /// A double; 0 until something asks for the request's time.
    pub global_request_time: u64,
}

/// `tsrm_tls_entry` (TSRM/TSRM.c), of thread-safe builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TsrmTlsEntry {
    pub storage: usize,
    pub count: usize,
    pub thread_id: usize,
    pub next: usize,
    pub sizeof: usize,
}

/// Differences between versions in meaning, not in offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRules {
    /// A CONST operand counts from `op_array.literals`, not from its op.
    pub literals_in_op_array: bool,
    /// The number of a run-time cache slot is in the literal, not in the op.
    pub cache_slots_in_literals: bool,
    /// `zend_call_function` puts a frame without a function on the C stack between its caller and
    /// its callee.
    pub dummy_frames: bool,
    /// The generators of a `yield from` end at the tree's root, not below the one without a parent.
    pub placeholder_ends_at_root: bool,
    /// A trait's method that is used under another name still has its first name.
    pub trait_alias_keeps_name: bool,
    /// Globals are also at `executor_globals_offset` from the `tsrm_tls_entry`.
    pub fast_tsrm_offsets: bool,
    /// ASSIGN_OP and its kin have their operator in `extended_value`; with them, CAST and ECHO got
    /// their numbers.
    pub has_assign_op: bool,
    /// A packed array has zvals, not `Bucket`s (`zend_array.arPacked`).
    pub packed_arrays_of_zvals: bool,
}

/// The machine of an image's code (`e_machine`, System V ABI).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    Aarch64,
}

/// One row: everything that a sample needs to know about one X.Y.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub major: u8,
    pub minor: u8,
    pub machine: Machine,
    /// The row is from a release candidate: the release may differ.
    pub pre_release: bool,
    /// `ZEND_MODULE_API_NO`, which is compared with the live engine's modules.
    pub module_api: u32,
    pub executor_globals: ExecutorGlobals,
    pub compiler_globals: CompilerGlobals,
    pub execute_data: ExecuteData,
    pub call_info: CallInfo,
    pub function: FunctionLayout,
    pub zend_op: ZendOp,
    pub op_types: OpTypes,
    pub zend_string: ZendStringLayout,
    pub zend_array: ZendArray,
    pub class_entry: ClassEntry,
    pub zend_object: ZendObject,
    pub zend_closure: ZendClosure,
    pub generator: Generator,
    pub module_entry: ModuleEntry,
    pub sapi_globals: SapiGlobals,
    pub core_globals: CoreGlobals,
    pub fcgi_request: FcgiRequest,
    pub gc_globals: GcGlobals,
    pub mm_heap: MmHeap,
    pub mm_chunk: MmChunk,
    pub mm_huge_list: MmHugeList,
    /// `None` before 8.1, which has no fibers.
    pub fiber: Option<ZendFiber>,
    /// `None` if no header has it.
    pub tsrm_tls_entry: Option<TsrmTlsEntry>,
    pub rules: VersionRules,
    /// `ZEND_VM_STACK_HEADER_SLOTS` * sizeof(zval): the offset of the first frame of a page.
    pub vm_stack_header: u64,
    /// Offset of `prev` in `zend_vm_stack`: the page before this one.
    pub vm_stack_prev: usize,
}

/// The row of a version, or `None` if there is none.
#[must_use]
pub fn layout_of(machine: Machine, major: u8, minor: u8) -> Option<&'static Layout> {
    ROWS.iter()
        .find(|row| (row.machine, row.major, row.minor) == (machine, major, minor))
}

/// The versions with a row, for messages: `8.2, 8.3`.
#[must_use]
pub fn known_versions() -> String {
    let names: Vec<String> = ROWS
        .iter()
        .filter(|row| row.machine == Machine::X86_64)
        .map(|row| {
            let mark = if row.pre_release {
                " (pre-release)"
            } else {
                ""
            };
            format!("{}.{}{mark}", row.major, row.minor)
        })
        .collect();
    names.join(", ")
}
