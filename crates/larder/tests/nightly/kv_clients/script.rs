//! Scripts of clients in other languages: `conformance/clients`.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::{Service, wait};

use super::server::{Entrance, Kind, Server};

pub(crate) fn java(class: &str) -> [&str; 6] {
    ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", "{}/java/classes:{}/java/lib/*", class]
}

/// Longer than any script runs, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(900);

/// Parts that every script has, in this order.
const PARTS: [&str; 9] =
    ["handshake", "strings", "expiry", "binary", "pipeline", "scan", "pubsub", "transactions", "reconnect"];

/// Runs [`PARTS`] and `more` against Redis, then against Larder. `{}` in a command stands for the folder `conformance/clients`. `newer`
/// names the parts for which this client requires a server newer than Redis 7.0.
pub(crate) fn play(words: &[&str], more: &[&str], newer: &[&str]) {
    for kind in [Kind::Redis, Kind::Larder] {
        let mut parts: Vec<_> = PARTS.iter().chain(more).copied().collect();
        parts.retain(|part| kind == Kind::Larder || !newer.contains(part));
        let mut open = Server::start(kind, Entrance::Open);
        let locked = Server::start(kind, Entrance::Locked);
        let mut command = command(words);
        command.env("SERVER", open.address().to_string()).env("LOCKED", locked.address().to_string());
        play_parts(command, &parts, || open.restart());
    }
}

/// Runs the part about clusters, starting at one node.
pub(crate) fn play_cluster(words: &[&str], node: SocketAddr) {
    let mut command = command(words);
    command.env("CLUSTER", node.to_string());
    play_parts(command, &["cluster"], || panic!("nothing to start again"));
}

/// Runs a script to its end. Each time it prints `restart`, `restart` runs before the script goes on.
fn play_parts(mut command: Command, parts: &[&str], mut restart: impl FnMut()) {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, mut go_on) = io::pipe().expect("a pipe");
    let program = Path::new(command.get_program()).file_name().expect("a program").display().to_string();
    let mut script = Service::start_with(command.args(parts), input.into(), folder.path(), &program);
    let mut restarts = 0;
    wait::until_within(DEADLINE, "the script ends", || {
        if script.stdout().lines().filter(|line| *line == "restart").count() > restarts {
            restarts += 1;
            restart();
            go_on.write_all(b"\n").expect("it reads");
        }
        script.status()
    });
    // A part without a success message counts as not run.
    let told = script.stdout();
    let good = parts.iter().filter(|part| told.lines().any(|line| line == format!("ok {part}")));
    assert_eq!(good.count(), parts.len(), "{command:?}:\n{told}\n{}", script.stderr());
}

fn command(words: &[&str]) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/clients");
    let folder = folder.canonicalize().expect("the folder of the scripts");
    let words: Vec<_> = words.iter().map(|word| word.replace("{}", &folder.display().to_string())).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("PYTHONPATH", folder.join("python/lib"));
    command
}
