//! The rows. Numbers only.
//!
//! Provenance: compiled from the real headers of the version named (`offsetof` read back from the assembler's output),
//! x86_64, non-thread-safe; within one X.Y no field named here has ever moved between releases.

use super::{
    CallInfo, ClassEntry, ExecuteData, ExecutorGlobals, Function, Generator, Layout, ModuleEntry,
    OpTypes, SapiGlobals, ZendArray, ZendOp, ZendStringLayout,
};

pub(super) static ROWS: &[Layout] = &[PHP_8_2];

/// PHP 8.2.32, Debian bookworm's source; the headers of 8.2.35 are equal in every field here.
const PHP_8_2: Layout = Layout {
    major: 8,
    minor: 2,
    module_api: 20_220_829,
    executor_globals: ExecutorGlobals {
        function_table: 432,
        class_table: 440,
        vm_stack_top: 456,
        vm_stack_end: 464,
        vm_stack: 472,
        current_execute_data: 488,
        exception_op: 888,
        exception_op_size: 96,
        opline_before_exception: 880,
    },
    execute_data: ExecuteData {
        opline: 0,
        func: 24,
        this: 32,
        this_type_info: 40,
        prev_execute_data: 48,
        run_time_cache: 64,
        sizeof: 80,
    },
    call_info: CallInfo {
        shift: 0,
        code: 1 << 16,
        top: 1 << 17,
    },
    function: Function {
        type_: 0,
        fn_flags: 4,
        function_name: 8,
        scope: 16,
        opcodes: 88,
        last: 80,
        filename: 152,
        line_start: 160,
        handler: 72,
        passing_flags: 4_194_304 | 8_388_608 | 262_144,
    },
    zend_op: ZendOp {
        op1: 8,
        op2: 12,
        result: 16,
        extended_value: 20,
        lineno: 24,
        opcode: 28,
        op1_type: 29,
        op2_type: 30,
        sizeof: 32,
    },
    op_types: OpTypes {
        is_const: 1,
        is_unused: 0,
        is_cv: 8,
    },
    zend_string: ZendStringLayout {
        h: 8,
        len: 16,
        val: 24,
    },
    zend_array: ZendArray {
        ar_data: 16,
        n_num_used: 24,
        n_table_size: 32,
        bucket_key: 24,
        bucket_sizeof: 32,
        sizeof: 56,
    },
    class_entry: ClassEntry {
        name: 8,
        parent: 16,
        constructor: 256,
    },
    generator: Generator {
        execute_data: 56,
        node_parent: 152,
        execute_fake: 184,
    },
    module_entry: ModuleEntry {
        zend_api: 4,
        zend_debug: 8,
        zts: 9,
        name: 32,
    },
    sapi_globals: SapiGlobals {
        global_request_time: 440,
    },
    vm_stack_header: 32,
    vm_stack_prev: 16,
};
