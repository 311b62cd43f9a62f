//! The files of `examples/`, and the objects in them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize as _;
use serde_json::Value;

/// The files of a folder of examples.
pub fn files(folder: &str) -> Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let entries = std::fs::read_dir(root.join(folder))?;
    let mut files: Vec<_> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// The objects of a file, moved to another namespace.
pub fn objects(file: &Path, namespace: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file)?;
    let text = text.replace("namespace: shop", &format!("namespace: {namespace}"));
    let documents = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    Ok(documents.collect::<Result<_, _>>()?)
}

/// The spec of the Job that an object contains.
pub fn job(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Job" => object.pointer("/spec"),
        "CronJob" => object.pointer("/spec/jobTemplate/spec"),
        "AnalysisTemplate" => object.pointer("/spec/metrics/0/provider/job/spec"),
        _ => None,
    }
}
