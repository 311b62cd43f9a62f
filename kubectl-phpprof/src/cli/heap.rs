//! The arguments of `heap`.

use clap::{Args, ValueEnum};

use super::ask::LookArguments;

#[derive(Args, Debug, Clone)]
pub struct HeapFlags {
    #[command(flatten)]
    pub pods: LookArguments,
    /// An earlier look, to show what has grown since: name of its request, or its profile file.
    #[arg(long, value_name = "NAME|FILE")]
    pub baseline: Option<String>,
    /// Name of the request. Default: made from the target.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The form of the report: text, json, md or html. Or where to write it: a file that ends with
    /// .md, .json or .html, or as for download, such as .pb.gz or .svg. html is the flame graph
    /// page: paths, or with --baseline how they grew.
    #[arg(short, long, value_name = "FORM|FILE", default_value = "text", value_parser = HeapOutput::parse)]
    pub output: HeapOutput,
    /// How long to wait.
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse, default_value = "5m")]
    pub timeout: u64,
}

/// How the report is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeapOutput {
    Form(InUseForm),
    /// The path of a file.
    File(String),
}

impl HeapOutput {
    pub fn parse(text: &str) -> Result<Self, String> {
        match InUseForm::from_str(text, false) {
            Ok(form) => Ok(Self::Form(form)),
            Err(_) if text.contains('.') => Ok(Self::File(text.to_owned())),
            Err(_) => Err("use text, json, md, html, or a file such as heap.html".to_owned()),
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum InUseForm {
    Text,
    Json,
    Md,
    Html,
}
