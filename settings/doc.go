// Package settings is the single source of all settings: the tags of a struct's fields. It derives
// from them the flags of a program with their help, their environment variables, the file's tuning
// section (Set), the parsing of YAML files (Load), and, in package reference, schemas, examples and
// pages.
//
// Tags of a setting of a program:
//
//	flag:"cache-size"      a flag, or
//	tuning:"fetch_width"   a key of the file's tuning section
//	moved:"true"           a tuning setting that was a flag: the flag still works, hidden
//	group:"Commands"       heading in the help; default: that of the field before it
//	unit:"SIZE"            unit of the value: SIZE, TIME, FILE, FOLDER, ADDRESS, ...
//	default:"24h"          unless the struct has a value already
//	otherwise:"..."        meaning of an empty value, for people
//	oneof:"auto off"       the permitted words of a text
//	min, max, above, below limits of a number or a time, in seconds
//	doc:"..."              one line for people
//
// Tags of a field of a file:
//
//	yaml:"stickiness"      its name; ",required" rejects a mapping without it; ",inline" takes the whole value
//	named:"Name"           for a list: the file has a mapping, whose keys go to this field of the elements
//	min, max, above, below limits of numbers and times, of values in a map of numbers, of the length of a list
//	eachmin                the minimum of the numbers in a list
//	example:"..."          YAML for the example, instead of the default
//	default, doc           as above
//
// A field of a type with the method Choices accepts the words that it returns. If a struct has the
// method Validate, it is called after the struct was read; an error with the method Where, a path
// such as labels.x, is reported at that position.
//
// The package keeps no state and has no goroutines.
package settings
