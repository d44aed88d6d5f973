//! In front of Debian's nginx with real files.

mod compare;
mod identical;

use testkit::{End, Nginx, Random, Setup, wait};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

#[test]
fn files_are_identical_with_and_without_the_cache() {
    identical::Files::start(20 << 20, "256MiB").check();
}

/// A range of something that isn't stored yet is answered with the right bytes, and so is what comes after it.
#[test]
fn a_range_before_the_whole() {
    let nginx = Nginx::start("expires 1h;");
    let body = Random::new(8).bytes(3 << 20);
    std::fs::write(nginx.root().join("file.bin"), &body).expect("a file in the folder of nginx");
    let larder = Setup::origin(LARDER, &nginx.url()).start();
    for (range, first, last) in
        [("100-199", 100, 199), ("-100", body.len() - 100, body.len() - 1), ("0-0", 0, 0)]
    {
        let part = larder.ask("GET", "/file.bin", &format!("Range: bytes={range}\r\n"));
        assert_eq!((part.status(), part.end), (206, End::Complete), "{range}: {:?}", part.head);
        assert!(part.body == body[first..=last], "{range}");
    }
    assert!(larder.get("/file.bin").body == body);
}

/// A file that changes behind the cache: validation finds out, and no client gets a mixture of both.
#[test]
fn a_file_that_changes_is_replaced_as_a_whole() {
    let nginx = Nginx::start("add_header Cache-Control no-cache;");
    let path = nginx.root().join("file.bin");
    let (old, new) = (vec![b'o'; 2 << 20], vec![b'n'; (2 << 20) + 1]);
    std::fs::write(&path, &old).expect("a file in the folder of nginx");
    let larder = Setup::origin(LARDER, &nginx.url()).start();
    assert!(larder.get("/file.bin").body == old);
    let again = larder.get("/file.bin");
    assert!(again.body == old && again.cache_status().contains("fwd-status=304"), "{:?}", again.head);
    // A new file in place of the old one: nginx never sees half of it.
    let next = nginx.root().join("next.bin");
    std::fs::write(&next, &new).expect("a file in the folder of nginx");
    std::fs::rename(&next, &path).expect("it replaces the old one");
    wait::until_true("the new file is served", || {
        let response = larder.get("/file.bin");
        assert!(response.body == old || response.body == new, "a mixture: {:?}", response.head);
        response.body == new
    });
}
