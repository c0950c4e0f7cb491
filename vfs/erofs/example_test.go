package erofs_test

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/erofs"
)

// An image of one folder, whose file has its data elsewhere: an overlay mount finds it in its
// data-only layer by the Redirect.
func ExampleWrite() {
	root := &erofs.Entry{Mode: unix.S_IFDIR | 0o755, Entries: []erofs.Entry{
		{Name: "latest", Mode: unix.S_IFLNK | 0o777, Target: "main.c"},
		{Name: "main.c", Mode: unix.S_IFREG | 0o644, Size: 120, Redirect: "/3f/2a"},
	}}
	var image bytes.Buffer
	size, err := erofs.Write(&image, root, erofs.Options{UID: 1000, GID: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(size, "bytes")
	read, err := erofs.OpenImage(bytes.NewReader(image.Bytes()))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = read.Redirects(func(redirect string) { fmt.Println("data in", redirect) })
	fmt.Println(err)
	// Output:
	// 4096 bytes
	// data in /3f/2a
	// <nil>
}
