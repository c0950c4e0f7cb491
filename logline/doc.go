// Package logline has the form of log lines: for people or JSON. It writes single lines to standard
// error where there is no logger: in processes beside a program, such as guards and launchers, and
// before and after a program's own log. It has no goroutines and keeps no state.
package logline
