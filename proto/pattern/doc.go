// Package pattern is how operators name several workers or operations at once, as in
// host=build-*: the text form of forerunner.admin.Pattern. Programs and pages read it, the
// scheduler matches by it.
package pattern
