//! Writes `src/layouts/rows.rs` from `src/layouts/php-abi.json` (`make generate`).
//!
//! Each row is the template below with the JSON's numbers in place of their names; 0 means that the
//! version has no such field. What this program does not do: contain a number itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

const HEAD: &str = "\
//! The rows, generated from `php-abi.json` by `make generate`: numbers only.

use super::{
    CallInfo, ClassEntry, CompilerGlobals, CoreGlobals, ExecuteData, ExecutorGlobals, FcgiRequest,
    FunctionLayout, GcGlobals, Generator, Layout, Machine, MmChunk, MmHeap, MmHugeList,
    ModuleEntry, OpTypes, SapiGlobals, TsrmTlsEntry, VersionRules, ZendArray, ZendClosure,
    ZendFiber, ZendObject, ZendOp, ZendStringLayout,
};

/// All rows.
#[rustfmt::skip]
#[expect(clippy::identity_op, reason = \"a flag that a version does not have is 0\")]
pub static ROWS: &[Layout] = &[
";

const ROW: &str = "
    executor_globals: ExecutorGlobals { function_table: {zend_executor_globals.function_table}, class_table: {zend_executor_globals.class_table}, vm_stack_top: {zend_executor_globals.vm_stack_top}, vm_stack_end: {zend_executor_globals.vm_stack_end}, vm_stack: {zend_executor_globals.vm_stack}, current_execute_data: {zend_executor_globals.current_execute_data}, exception_op: {zend_executor_globals.exception_op}, exception_op_size: {zend_executor_globals.exception_op.size}, opline_before_exception: {zend_executor_globals.opline_before_exception}, in_autoload: {zend_executor_globals.in_autoload}, symbol_table: {zend_executor_globals.symbol_table}, active: {zend_executor_globals.active}, flags: {zend_executor_globals.flags}, user_error_handler: {zend_executor_globals.user_error_handler}, object_buckets: {zend_executor_globals.objects_store.object_buckets}, objects_top: {zend_executor_globals.objects_store.top}, objects_size: {zend_executor_globals.objects_store.size} },
    compiler_globals: CompilerGlobals { function_table: {zend_compiler_globals.function_table}, class_table: {zend_compiler_globals.class_table}, in_compilation: {zend_compiler_globals.in_compilation}, map_ptr_base: {zend_compiler_globals.map_ptr_base}, arena: {zend_compiler_globals.arena} },
    execute_data: ExecuteData { opline: {zend_execute_data.opline}, func: {zend_execute_data.func}, this: {zend_execute_data.This}, this_type_info: {zend_execute_data.This.u1.type_info}, prev_execute_data: {zend_execute_data.prev_execute_data}, return_value: {zend_execute_data.return_value}, run_time_cache: {zend_execute_data.run_time_cache}, sizeof: {zend_execute_data.sizeof}, first_argument: {ZEND_CALL_FRAME_SLOT} * 16 },
    call_info: CallInfo { shift: {call_info_shift}, code: {ZEND_CALL_CODE}, top: {ZEND_CALL_TOP}, closure: {ZEND_CALL_CLOSURE}, fake_closure: {ZEND_CALL_FAKE_CLOSURE}, generator: {ZEND_CALL_GENERATOR} },
    function: FunctionLayout { type_: {zend_op_array.type}, fn_flags: {zend_op_array.fn_flags}, function_name: {zend_op_array.function_name}, scope: {zend_op_array.scope}, opcodes: {zend_op_array.opcodes}, last: {zend_op_array.last}, filename: {zend_op_array.filename}, line_start: {zend_op_array.line_start}, literals: {zend_op_array.literals}, run_time_cache: {zend_op_array.run_time_cache}, last_var: {zend_op_array.last_var}, static_variables: {zend_op_array.static_variables}, static_variables_ptr: {zend_op_array.static_variables_ptr}, num_dynamic_func_defs: {zend_op_array.num_dynamic_func_defs}, dynamic_func_defs: {zend_op_array.dynamic_func_defs}, handler: {zend_internal_function.handler}, module: {zend_internal_function.module}, passing_flags: {ZEND_ACC_CLOSURE} | {ZEND_ACC_FAKE_CLOSURE} | {ZEND_ACC_CALL_VIA_TRAMPOLINE} },
    zend_op: ZendOp { op1: {zend_op.op1}, op2: {zend_op.op2}, result: {zend_op.result}, extended_value: {zend_op.extended_value}, lineno: {zend_op.lineno}, opcode: {zend_op.opcode}, op1_type: {zend_op.op1_type}, op2_type: {zend_op.op2_type}, sizeof: {zend_op.sizeof} },
    op_types: OpTypes { is_const: {IS_CONST}, is_unused: {IS_UNUSED}, is_cv: {IS_CV} },
    zend_string: ZendStringLayout { h: {zend_string.h}, len: {zend_string.len}, val: {zend_string.val} },
    zend_array: ZendArray { flags: {zend_array.u.flags}, packed: {HASH_FLAG_PACKED}, n_table_mask: {zend_array.nTableMask}, ar_data: {zend_array.arData}, n_num_used: {zend_array.nNumUsed}, n_num_of_elements: {zend_array.nNumOfElements}, n_table_size: {zend_array.nTableSize}, bucket_h: {Bucket.h}, bucket_key: {Bucket.key}, bucket_sizeof: {Bucket.sizeof}, bucket_next: {Bucket.val} + {zval.u2}, is_indirect: {IS_INDIRECT}, sizeof: {zend_array.sizeof} },
    class_entry: ClassEntry { name: {zend_class_entry.name}, parent: {zend_class_entry.parent}, constructor: {zend_class_entry.constructor}, function_table: {zend_class_entry.function_table}, ce_flags: {zend_class_entry.ce_flags}, anonymous: {ZEND_ACC_ANON_CLASS}, enumeration: {ZEND_ACC_ENUM}, type_: {zend_class_entry.type}, line_start: {zend_class_entry.info.user.line_start}, default_properties_count: {zend_class_entry.default_properties_count}, default_static_members_count: {zend_class_entry.default_static_members_count}, default_static_members_table: {zend_class_entry.default_static_members_table}, properties_info: {zend_class_entry.properties_info}, static_member: {ZEND_ACC_STATIC} },
    zend_object: ZendObject { handle: {zend_object.handle}, ce: {zend_object.ce}, properties: {zend_object.properties}, properties_table: {zend_object.properties_table} },
    zend_closure: ZendClosure { this_ptr: {zend_closure.this_ptr} },
    generator: Generator { execute_data: {zend_generator.execute_data}, node_parent: {zend_generator.node.parent}, node_children: {zend_generator.node.children}, node_ptr: {zend_generator.node.ptr}, execute_fake: {zend_generator.execute_fake}, flags: {zend_generator.flags} },
    module_entry: ModuleEntry { zend_api: {zend_module_entry.zend_api}, zend_debug: {zend_module_entry.zend_debug}, zts: {zend_module_entry.zts}, name: {zend_module_entry.name}, version: {zend_module_entry.version} },
    sapi_globals: SapiGlobals { server_context: {sapi_globals_struct.server_context}, request_method: {sapi_globals_struct.request_info.request_method}, path_translated: {sapi_globals_struct.request_info.path_translated}, request_uri: {sapi_globals_struct.request_info.request_uri}, global_request_time: {sapi_globals_struct.global_request_time} },
    core_globals: CoreGlobals { during_request_startup: {php_core_globals.during_request_startup}, http_globals: {php_core_globals.http_globals} },
    fcgi_request: FcgiRequest { has_env: {fcgi_request.has_env}, env: {fcgi_request.env}, hash_value: {fcgi_hash_bucket.hash_value}, var_len: {fcgi_hash_bucket.var_len}, var: {fcgi_hash_bucket.var}, val_len: {fcgi_hash_bucket.val_len}, val: {fcgi_hash_bucket.val}, next: {fcgi_hash_bucket.next}, sizeof: {fcgi_hash_bucket.sizeof} },
    gc_globals: GcGlobals { gc_enabled: {zend_gc_globals.gc_enabled}, gc_active: {zend_gc_globals.gc_active} },
    mm_heap: MmHeap { size: {zend_mm_heap.size}, peak: {zend_mm_heap.peak}, real_size: {zend_mm_heap.real_size}, real_peak: {zend_mm_heap.real_peak}, limit: {zend_mm_heap.limit}, free_slot: {zend_mm_heap.free_slot}, huge_list: {zend_mm_heap.huge_list}, main_chunk: {zend_mm_heap.main_chunk}, cached_chunks: {zend_mm_heap.cached_chunks}, chunks_count: {zend_mm_heap.chunks_count}, cached_chunks_count: {zend_mm_heap.cached_chunks_count}, sizeof: {zend_mm_heap.sizeof}, tail_moved: {zend_mm_heap.tail.moved}, sizeof_other: {zend_mm_heap.sizeof.other} },
    mm_chunk: MmChunk { next: {zend_mm_chunk.next}, free_pages: {zend_mm_chunk.free_pages}, heap_slot: {zend_mm_chunk.heap_slot} },
    mm_huge_list: MmHugeList { ptr: {zend_mm_huge_list.ptr}, size: {zend_mm_huge_list.size}, next: {zend_mm_huge_list.next} },
    rules: VersionRules { literals_in_op_array: {literals_in_op_array}, cache_slots_in_literals: {cache_slots_in_literals}, dummy_frames: {dummy_frames}, placeholder_ends_at_root: {placeholder_ends_at_root}, trait_alias_keeps_name: {trait_alias_keeps_name}, fast_tsrm_offsets: {fast_tsrm_offsets}, has_assign_op: {has_assign_op}, packed_arrays_of_zvals: {packed_arrays_of_zvals} },
    vm_stack_header: {ZEND_VM_STACK_HEADER_SLOTS} * 16,
    vm_stack_prev: {zend_vm_stack.prev},
";

const TSRM: &str = "Some(TsrmTlsEntry { storage: {tsrm_tls_entry.storage}, count: {tsrm_tls_entry.count}, thread_id: {tsrm_tls_entry.thread_id}, next: {tsrm_tls_entry.next}, sizeof: {tsrm_tls_entry.sizeof} })";

const FIBER: &str = "Some(ZendFiber { kind: {zend_fiber.context.kind}, status: {zend_fiber.context.status}, caller: {zend_fiber.caller}, execute_data: {zend_fiber.execute_data}, stack_bottom: {zend_fiber.stack_bottom}, sizeof: {zend_fiber.sizeof} })";

/// The text of `rows.rs`, or an error that names what the JSON lacks.
pub fn rows(json: &str) -> Result<String, String> {
    let data: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let mut text = HEAD.to_owned();
    for row in data["rows"].as_array().ok_or("no rows")? {
        for (machine, variant) in [("x86_64", "X86_64"), ("aarch64", "Aarch64")] {
            let numbers = numbers(row, machine)?;
            let (major, minor) = row["version"]
                .as_str()
                .and_then(|version| version.split_once('.'))
                .ok_or("a row has no version")?;
            // Writing into a String cannot fail.
            let _ = write!(
                text,
                "// {} from {}\nLayout {{ major: {major}, minor: {minor}, machine: Machine::{variant}, pre_release: {}, module_api: {},",
                row["patch"].as_str().ok_or("a row has no patch")?,
                row["source"].as_str().ok_or("a row has no source")?,
                row["pre_release"],
                number(&numbers, "ZEND_MODULE_API_NO"),
            );
            text += &filled(ROW, &numbers);
            let optional = |template: &str, size: &str| {
                let has_it = numbers.contains_key(size);
                let filled = has_it.then(|| filled(template, &numbers));
                filled.unwrap_or_else(|| "None".to_owned())
            };
            let fiber = optional(FIBER, "zend_fiber.sizeof");
            let tsrm = optional(TSRM, "tsrm_tls_entry.sizeof");
            let _ = writeln!(
                text,
                "    fiber: {fiber},\n    tsrm_tls_entry: {tsrm},\n}},"
            );
        }
    }
    text += "];\n";
    Ok(text)
}

/// Every number and rule of a row, by name.
fn numbers(row: &Value, machine: &str) -> Result<BTreeMap<String, Value>, String> {
    let mut numbers = BTreeMap::new();
    for group in ["fields", "rules", machine] {
        match row[group].as_object() {
            Some(group) => numbers.extend(group.clone()),
            None if group == "x86_64" => {}
            None => return Err(format!("a row has no {group}")),
        }
    }
    Ok(numbers)
}

fn number(numbers: &BTreeMap<String, Value>, name: &str) -> String {
    numbers
        .get(name)
        .map_or_else(|| "0".to_owned(), Value::to_string)
}

/// The template with its names replaced. A name has no space, which distinguishes it from a block
/// of Rust.
fn filled(template: &str, numbers: &BTreeMap<String, Value>) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        match after.split_once('}') {
            Some((name, tail)) if !name.contains(' ') => {
                text += &number(numbers, name);
                rest = tail;
            }
            _ => {
                text.push('{');
                rest = after;
            }
        }
    }
    text + rest
}

#[allow(
    dead_code,
    reason = "the test that compares includes this file without running it"
)]
fn main() -> Result<(), String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/layouts");
    let json = std::fs::read_to_string(format!("{folder}/php-abi.json"))
        .map_err(|error| error.to_string())?;
    std::fs::write(format!("{folder}/rows.rs"), rows(&json)?).map_err(|error| error.to_string())
}
