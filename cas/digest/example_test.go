package digest_test

import (
	"fmt"
	"log"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// The digest of a blob, as REv2 writes it.
func ExampleOf() {
	d := digest.Of(digest.SHA256, []byte("hello\n"))
	fmt.Println(d)
	same, err := digest.Parse(digest.SHA256, d.Hash(), d.SizeBytes())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("read again it is the same:", same == d)
	// Output:
	// 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03/6
	// read again it is the same: true
}
