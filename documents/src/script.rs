//! The commands of a page as one script for bash.
//!
//! Invariant: the script ends by itself. A program that runs until it is stopped gets its own
//! terminal, and keys that stop it are typed there after a while.

use crate::{Setup, blocks};

/// Options and commands that run until they are stopped.
const GOES_ON: [&str; 4] = [" -w", " --live", " phpprof ui", " port-forward "];

/// The commands of a page's blocks with these setups, in order. A program that does not end is
/// stopped after this many seconds.
pub fn script(text: &str, setups: &[Setup], seconds: u32) -> String {
    let mut script = String::new();
    for block in blocks(text) {
        let Some(setup) = block.setup().filter(|setup| setups.contains(setup)) else {
            continue;
        };
        for line in block.text.lines() {
            let before_comment = line.split(" # ").next().unwrap_or(line);
            let goes_on = GOES_ON.iter().any(|word| before_comment.contains(word));
            if setup == Setup::Terminal || goes_on {
                script += &on_a_terminal(line, seconds);
            } else {
                script += line;
            }
            script.push('\n');
        }
    }
    script
}

/// Runs the line on a terminal and types `q` and Ctrl-C there every second, because a program that
/// is still being built or started may miss them. The program must be able to end by the signal. If
/// the tests run in the background of a shell, it would inherit the signal as ignored.
fn on_a_terminal(line: &str, seconds: u32) -> String {
    let line = line.replace('\'', r"'\''");
    format!(
        "{{ trap '' PIPE; sleep {seconds}; while printf 'q\\003' 2>/dev/null; do sleep 1; done; }} | env --default-signal=INT,QUIT script --quiet --return --command 'exec {line}' /dev/null || test $? = 130"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "```sh cluster\nget pods\n```\n```sh example\nlist -w # it's\nlist # -w\n```\n```sh terminal\ntop\n```\n";

    #[test]
    fn script_has_only_blocks_of_its_setups() {
        assert_eq!(script(PAGE, &[Setup::Cluster], 1), "get pods\n");
        assert_eq!(script(PAGE, &[], 1), "");
    }

    #[test]
    fn what_goes_on_has_a_terminal() {
        let found = script(PAGE, &[Setup::Example, Setup::Terminal], 3);
        let lines: Vec<_> = found.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains(r"sleep 3;") && lines[0].contains(r"'exec list -w # it'\''s'"));
        assert_eq!(lines[1], "list # -w");
        assert!(lines[2].contains("'exec top'"));
    }

    #[test]
    fn script_ends_programs_that_go_on() {
        let page = "```sh terminal\ncat\n```\n";
        let mut shell = std::process::Command::new("timeout");
        shell.args(["20", "bash", "-euo", "pipefail", "-c"]);
        shell.arg(script(page, &[Setup::Terminal], 1));
        assert!(shell.output().unwrap().status.success());
    }
}
