package recorder

// packSetup makes a tarball.
const packSetup = `tar -cf "$SHARED/all.tar" -C "$MODULE" bench docs scheduler vfs worker web`

// packWorks compress and sort.
func packWorks() []work {
	list := []work{
		{kind: "PackageTar", target: "//pkg:gzip", script: `gzip -9 <changed.tar >made`},
		{kind: "PackageTar", target: "//pkg:gzip_fast", script: `gzip -1 <changed.tar >made`},
		{kind: "PackageTar", target: "//pkg:bzip2", script: `bzip2 <changed.tar >made`},
		{kind: "PackageTar", target: "//pkg:xz", script: `xz -3 -T1 <changed.tar >made`},
		{kind: "PackageTar", target: "//pkg:xz_release", wide: true, script: `xz -6 -T$CPUS --block-size=1MiB <changed.tar >made`},
		{kind: "PackageTar", target: "//pkg:zstd", wide: true, script: `zstd -q -13 -T$CPUS -B1MiB changed.tar -o made`},
		{kind: "Genrule", target: "//data:sorted", wide: true, script: `tr ' ' '\n' <changed.tar >words; sort --parallel=$CPUS -S 20M words | uniq -c | sort -rn >made`},
	}
	for i := range list {
		list[i].setup = packSetup
		list[i].script = `{ cat "$SHARED/all.tar"; head -c $(($ROUND * 100000)) "$SHARED/all.tar"; } >changed.tar; ` + list[i].script
	}
	return list
}

// waiting waits a number of seconds of the recorded machine's time.
const waiting = `waiting() { sleep $(python3 -I -S -c "print($SLOW * $1)"); }
`

// computing adds up numbers.
const computing = `computing() { python3 -I -S -c "print(sum(i * i for i in range($1 + $ROUND * $1 // 30)))"; }
`

// testWorks wait, most of the time or between computations.
func testWorks() []work {
	return []work{
		{kind: "ShTest", target: "//server:ready_test", script: waiting + "waiting 2"},
		{kind: "ShTest", target: "//server:poll_test", script: waiting + computing + "for i in 1 2 3 4 5; do waiting 0.4; computing 300000; done"},
		{kind: "ShTest", target: "//server:load_test", script: waiting + computing + "waiting 1; computing 20000000"},
		{kind: "ShTest", target: "//server:pairs_test", wide: true, script: waiting + computing + "waiting 0.5; computing 8000000 & computing 8000000 & wait"},
		{kind: "ShTest", target: "//server:quick_test", script: "grep -c a \"$MODULE/README.md\""},
	}
}
