//! Parses a shell block into commands: joins continued lines, leaves out comments and
//! here-documents, and splits pipes.
//!
//! It expands nothing: a word with `$` in it stays as it is.

use thiserror::Error;

/// Why a block is not a command line, as `shlex` says it.
#[derive(Debug, Error)]
#[error("not the words of a shell: {0}")]
pub struct Unreadable(String);

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Variables that are set for this command only, such as `FULL=1`.
    pub variables: Vec<String>,
    /// The program first.
    pub words: Vec<String>,
}

impl Command {
    /// The arguments, if it runs this program, for instance `["kubectl", "phpprof"]`.
    pub fn arguments_of(&self, program: &[&str]) -> Option<&[String]> {
        let begins = self.words.len() >= program.len()
            && program
                .iter()
                .zip(&self.words)
                .all(|(one, other)| one == other);
        begins.then(|| &self.words[program.len()..])
    }
}

/// The separators between two commands of a line.
const BETWEEN: [&str; 5] = ["|", "||", "&&", ";", "&"];

/// The commands of a block, in their order.
pub fn commands(text: &str) -> Result<Vec<Command>, Unreadable> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut line = line.to_owned();
        while line.ends_with('\\') {
            line.pop();
            line.push_str(lines.next().unwrap_or_default());
        }
        if let Some((_, end)) = line.split_once("<<") {
            let end = end.split_whitespace().next().unwrap_or_default().to_owned();
            lines.by_ref().find(|line| line.trim() == end);
        }
        found.extend(of_line(&line)?);
    }
    Ok(found)
}

fn of_line(line: &str) -> Result<Vec<Command>, Unreadable> {
    let words = shlex::split(line).ok_or_else(|| Unreadable(line.to_owned()))?;
    let redirects = |word: &String| word.starts_with(['<', '>']);
    let commands = words.split(|word| BETWEEN.contains(&word.as_str()));
    let commands = commands.map(|words| {
        let end = words.iter().position(redirects).unwrap_or(words.len());
        let begin = words.iter().position(|word| !assigns(word));
        let begin = begin.unwrap_or(end).min(end);
        Command {
            variables: words[..begin].to_vec(),
            words: words[begin..end].to_vec(),
        }
    });
    Ok(commands
        .filter(|command| !command.words.is_empty())
        .collect())
}

/// Whether a word sets a variable for the command that follows.
fn assigns(word: &str) -> bool {
    let name = |c: char| c.is_ascii_uppercase() || c == '_';
    word.split_once('=')
        .is_some_and(|(left, _)| !left.is_empty() && left.chars().all(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let found = commands(text).unwrap();
        found
            .iter()
            .map(|command| command.words.join(" "))
            .collect()
    }

    #[test]
    fn lines_are_joined_and_comments_left_out() {
        let text = "helm install a \\\n  --set b=c   # why\n# only a comment\nkubectl get pods\n";
        assert_eq!(
            words(text),
            ["helm install a --set b=c", "kubectl get pods"]
        );
    }

    #[test]
    fn pipes_and_redirections_divide_a_line() {
        let text = "FULL=1 make test > log && kubectl apply -f - <<EOF\nkind: Pod\nEOF\necho 'a | b' | cat\n";
        assert_eq!(
            words(text),
            ["make test", "kubectl apply -f -", "echo a | b", "cat"]
        );
    }

    #[test]
    fn commands_leave_out_what_is_set() {
        let found = commands("FULL=1 make test A=b\nA=1").unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].variables, ["FULL=1"]);
        assert_eq!(found[0].words, ["make", "test", "A=b"]);
    }

    #[test]
    fn a_quote_that_does_not_end_is_refused() {
        assert!(commands("echo 'a").is_err());
    }
}
