// Package recording has figures of real commands on machines of several sizes: package recorder
// measures them, and package streams plays them in builds. [Builtin] is the recording that is checked
// in.
//
// A recording is a CSV file. Lines that start with # are comments. The first other line names the
// columns:
//
//	kind       what similar commands share, like a mnemonic
//	target     the command's name
//	round      from 1; each round has slightly different sources
//	cpus       CPUs of the machine
//	memory_mib limit of the machine's memory, page cache included
//	end        done, failed (by itself, as a heap that is too small) or killed (out of memory)
//	seconds    duration
//	cpu_s      CPU time
//	throttled_s how long the CPUs did not suffice
//	stalled_s  mean of how long some and all processes waited for memory (pressure stall information)
//	peak_mib   peak of memory, page cache included
//
// Each round of a command has one line for each size of machine, in any order, and is done on the
// largest. All machines have the same memory for each CPU.
package recording
