//! Requests to a node that is taking over a slot: it answers them only after ASKING.

use redis::{Cmd, Pipeline, Value, cmd, pipe};

/// A pipeline with ASKING before each command that needs it.
pub(super) struct Asking {
    pub(super) pipeline: Pipeline,
    /// Whether each reply is to be passed on, or is that of an ASKING.
    is_wanted: Vec<bool>,
}

impl Asking {
    /// Adds ASKING. It holds for one command, or for a whole transaction if it precedes MULTI.
    pub(super) fn before(commands: &Pipeline) -> Self {
        let (mut pipeline, mut is_wanted, mut is_queued) = (pipe(), Vec::new(), false);
        for command in commands.cmd_iter() {
            let name = name(command);
            if !is_queued && !KEYLESS.contains(&&name[..]) {
                pipeline.add_command(cmd("ASKING"));
                is_wanted.push(false);
            }
            is_queued = match &name[..] {
                b"MULTI" => true,
                b"EXEC" => false,
                _ => is_queued,
            };
            pipeline.add_command(command.clone());
            is_wanted.push(true);
        }
        Self { pipeline, is_wanted }
    }

    /// Removes the replies to ASKING.
    pub(super) fn replies(&self, replies: Vec<Value>) -> Vec<Value> {
        let wanted = replies.into_iter().zip(&self.is_wanted).filter(|(_, is_wanted)| **is_wanted);
        wanted.map(|(reply, _)| reply).collect()
    }
}

fn name(command: &Cmd) -> Vec<u8> {
    match command.args_iter().next() {
        Some(redis::Arg::Simple(name)) => name.to_ascii_uppercase(),
        _ => Vec::new(),
    }
}

/// Commands without keys that may occur outside a transaction. EXEC ends one.
const KEYLESS: [&[u8]; 6] = [b"CLIENT", b"UNWATCH", b"PING", b"ROLE", b"TIME", b"EXEC"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_asked_for_once() {
        let mut commands = pipe();
        commands.cmd("UNWATCH").cmd("WATCH").arg("a").cmd("GETRANGE").arg("a").arg(0).arg(1);
        commands.cmd("MULTI").cmd("SET").arg("a").arg(1).cmd("DEL").arg("b").cmd("EXEC").cmd("GET").arg("a");
        let asking = Asking::before(&commands);
        let names: Vec<_> = asking.pipeline.cmd_iter().map(name).collect();
        let names: Vec<_> = names.iter().map(|name| std::str::from_utf8(name).unwrap()).collect();
        let expected = "UNWATCH ASKING WATCH ASKING GETRANGE ASKING MULTI SET DEL EXEC ASKING GET".split(' ');
        assert!(names.iter().copied().eq(expected), "{names:?}");
        let replies = (0..12).map(Value::Int).collect();
        let kept: Vec<_> = [0, 2, 4, 6, 7, 8, 9, 11].map(Value::Int).into();
        assert_eq!(asking.replies(replies), kept);
    }
}
