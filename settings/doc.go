// Package settings has one source for what may be set: the tags of a struct's fields. From them come the flags of a
// program with their help, their environment variables, the file's tuning section (Set), the reading of YAML tables
// (Load), and, in package reference, schemas, examples and pages.
//
// Tags of a setting of a program:
//
//	flag:"cache-size"      a flag, or
//	tuning:"fetch_width"   a key of the file's tuning section
//	group:"Commands"       heading of the help; that of the field before it unless it is given
//	unit:"SIZE"            what a value is; SIZE, TIME, FILE, FOLDER, ADDRESS, ...
//	default:"24h"          unless the struct has a value already
//	otherwise:"..."        what an empty value means, for people
//	oneof:"auto off"       the words that a text may be
//	min, max, above, below bounds of a number or a time, in seconds
//	doc:"..."              one line for people
//
// Tags of a field of a file:
//
//	yaml:"stickiness"      its name; ",required" refuses a mapping without it; ",inline" takes the whole value
//	named:"Name"           for a list: it is written as a mapping, whose keys go to this field of the elements
//	min, max, above, below bounds of numbers and times, of values in a map of numbers, of the length of a list
//	eachmin                the least of the numbers in a list
//	example:"..."          YAML for the example; else the default
//	default, doc           as above
//
// A field of a type with the method Choices takes the words that this returns. A struct with the method Validate is
// asked when it has been read; an error with the method Where, a path such as labels.x, is shown there.
//
// The package keeps nothing and has no goroutines.
package settings
