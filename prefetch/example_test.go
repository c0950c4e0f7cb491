package prefetch_test

import (
	"fmt"

	"github.com/forerunner-build/forerunner/prefetch"
)

// A profile has the paths that a run read, and the directories above them.
func ExampleProfile() {
	var read []prefetch.PathHash
	for _, path := range []string{"", "include", "include/stdio.h"} {
		read = append(read, prefetch.HashPath(path))
	}
	p := prefetch.NewProfile(read, prefetch.ProfileOptions{})
	fmt.Println(p.Contains(prefetch.HashPath("include/stdio.h")))
	fmt.Println(p.Contains(prefetch.HashPath("include").Child("math.h")))
	// Output:
	// true
	// false
}
