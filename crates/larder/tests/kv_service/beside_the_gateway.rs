//! `larder serve` with `[kv]`: both in one process.

use testkit::{Port, ScriptedOrigin, Setup, converse, wait};

use crate::LARDER;

#[test]
fn one_process_serves_clients_of_both() {
    let origin = ScriptedOrigin::fixed("", "hi");
    let kv = Port::reserve();
    let larder = Setup::config(
        LARDER,
        &format!(
            "[kv]\nlisten = [\"{}\"]\n[[site]]\nname = \"a\"\norigin = \"{}\"\n",
            kv.address(),
            origin.url()
        ),
    )
    .start();
    assert_eq!(larder.get("/").text(), "hi");
    assert_eq!(converse(kv.address(), b"SET k v\r\nGET k\r\n", usize::MAX), b"+OK\r\n$1\r\nv\r\n");
    assert_eq!(larder.metric("larder_kv_keys", &[]).to_string(), "1");
    // A request is counted when its answer has gone out.
    wait::until_true("it is counted", || larder.metric("larder_requests_total", &["site=\"a\""]) > 0.0);
    assert_eq!(larder.metric("larder_requests_total", &["site=\"a\""]).to_string(), "1");
}
