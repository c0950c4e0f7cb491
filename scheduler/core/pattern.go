package core

import "github.com/forerunner-build/forerunner/proto/pattern"

// A Pattern picks out workers and operations by their attributes.
type Pattern = pattern.Pattern
