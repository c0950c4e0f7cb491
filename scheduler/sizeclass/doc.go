// Package sizeclass chooses the size of the worker that runs an action first. It uses the records
// of similar actions, and learns from each run.
//
// A size class is a positive number that gives the size of a worker relative to others of
// the same platform; memory and CPUs are assumed to be proportional to it. An action
// passes through these types, and each type offers only the next valid steps:
//
//	Analyzer.Analyze   reads the records of the action; may wait for the store
//	Selector.Select    chooses among the classes that exist at the moment
//	Learner.Succeeded  … or Failed, which may ask for a run on the largest class
//	Analyzer.Learn     writes the resulting Lesson; may wait for the store
//
// A Learner is used once. Its Abandoned is for an action that was cancelled,
// preempted or lost: nothing is learned from it. Between Analyze and
// Learn there is no I/O, clock or randomness: the caller passes the time, and random
// choices follow from Options.Seed, the action and its records. The same action
// with the same records gets the same choice, before and after a restart.
//
// # The rule
//
// The package follows Buildbarn's published rule (ADR 7, "Worker size classes", 2021, and the
// comments of its scheduler's configuration) where that is specified. With Options.Plain it does
// nothing else:
//
//   - An action may take T·(L/s)^x on class s, where T is the median of its durations on the
//     largest class L. While T is unknown, it may take MinTimeout/TimeoutMultiplier.
//   - Each earlier outcome on a smaller class is a Bernoulli trial: it was acceptable by
//     today's T or it was not. A timeout sooner than that is neither and does not count.
//     With k of n trials acceptable, the probability that the next one is acceptable is
//     (k+1)/(n+2): Laplace's rule of succession, the posterior mean with a uniform prior.
//     It is never 0 or 1, so each class is tried again about once in History runs, as
//     Buildbarn's documents say of theirs.
//   - Starting with the smallest class, each class is chosen with its probability; otherwise the
//     next one is considered. The last choice is the largest.
//   - The timeout on a smaller class is TimeoutMultiplier times the acceptable duration, at least
//     MinTimeout, at most the client's timeout.
//
// A failure on a class that is not the largest says nothing about the action: the action
// runs again on the largest, and only that result is final. For FailureCache after
// a final failure the action starts on the largest.
//
// # Beyond the rule
//
// Options.Plain disables the rest; docs/SCHEDULING.md#size-classes has its benefit. A run
// on one class can count as a trial on another. Its duration there follows
// from Amdahl's law (1967): CPU time and duration on n CPUs give the parallel share of
// the work. The choice then prefers the class with the smallest
//
//	delay^(1-x) · cost^x
//
// where delay is the expected time to the result, including the wait for a worker and a second run,
// and cost is the expected time on workers, each second times the size class. If no action
// waits and no run fails, this is t·s^x times a constant, so a class is better than
// the largest exactly if its time is acceptable by the rule. For long actions x is less, so that
// none takes more than Options.MaxDelay longer than on the largest class.
//
// # Statistics
//
// Statistics are hints. A Store keeps them in Buildbarn's messages
// (buildbarn.iscc.PreviousExecutionStats by reduced action digest, bucket "statistics"). Data
// without a field there is in a separate record (forerunner.runs.Record, by reduced action digest
// in bucket "runs", by the common properties of similar actions in bucket "kinds"). A store that
// fails, hangs or holds nonsense makes choices worse; it never makes an action fail.
//
// # Goroutines and locks
//
// The package starts no goroutine. An Analyzer may be used concurrently. Nobody holds two of its
// locks, or holds one during I/O. One caller at a time uses a Selector or a Learner.
package sizeclass
