// Package sizeclass decides on how large a worker an action runs first, from what
// similar actions did, and learns from what happens.
//
// A size class is a positive number that says how large a worker is relative to others of
// the same platform; memory and CPUs are taken to grow in proportion to it. The way of an
// action goes from one type to the next, and each offers the only thing that may be done
// then:
//
//	Analyzer.Analyze   reads what is known of the action; may wait for the store
//	Selector.Select    chooses among the classes that there are at the moment
//	Learner.Succeeded  … or Failed, which may ask for a run on the largest class
//	Analyzer.Learn     writes the Lesson that came of it; may wait for the store
//
// A Learner is used once; its Abandoned ends the way of an action that was cancelled,
// preempted or lost, from which nothing is learned. Between Analyze and
// Learn there is no I/O, clock or randomness: the time comes in, and what is left to
// chance follows from Options.Seed, the action and what was known of it. The same action
// with the same past gets the same choice, before and after a restart.
//
// # The rule
//
// What Buildbarn made public (ADR 7, "Worker size classes", 2021, and the comments of its
// scheduler's configuration) is followed where it is given, with Options.Plain nothing else:
//
//   - An action may take T·(L/s)^x on class s, where T is the median of what it took on the
//     largest class L. As long as T is not known it may take MinTimeout/TimeoutMultiplier.
//   - Each earlier outcome on a smaller class is a Bernoulli trial: it was acceptable by
//     today's T or it was not. A timeout sooner than that says neither and does not count.
//     Of n trials, k acceptable, the probability that the next one will be is taken to be
//     (k+1)/(n+2): Laplace's rule of succession, the mean of the posterior where before the
//     first trial all probabilities were equally likely. It is never 0 or 1, so that each
//     class is tried again about once in History runs, as Buildbarn's documents say of theirs.
//   - From the smallest class on, each is taken with its probability, else the next is
//     looked at; the largest is left.
//   - The timeout on a smaller class is TimeoutMultiplier times what is acceptable, at least
//     MinTimeout, at most what the client asked for.
//
// A failure on a class that is not the largest says nothing about the action; it
// runs again on the largest, and only what happens there is final. Until FailureCache after
// a final failure the action starts on the largest.
//
// # Beyond the rule
//
// The rest is left out with Options.Plain; docs/SCHEDULING.md#size-classes has what it gives. A run
// on one class can stand for a trial on another. How long it would have taken there follows
// from Amdahl's law (1967): CPU time and duration on n CPUs say which part of the work ran in
// parallel. The choice then prefers the class of the least
//
//	delay^(1-x) · cost^x
//
// where delay is the expected time to the result, with waiting for a worker and a second run,
// and cost the expected time on workers, each second times the size class. Where nobody
// waits and no run fails that is t·s^x times a constant, so that a class is better than
// the largest exactly where its time is acceptable by the rule.
//
// # Statistics
//
// They are hints. They are kept in a Store in Buildbarn's messages
// (buildbarn.iscc.PreviousExecutionStats by reduced action digest, bucket "statistics");
// what those have no room for is beside them (forerunner.runs.Record, by reduced action digest
// in bucket "runs", by what alike actions have in common in bucket "kinds"). A store that
// fails, hangs or holds nonsense makes choices worse, never an action fail.
//
// # Goroutines and locks
//
// The package starts no goroutine. An Analyzer may be used concurrently; its locks are each
// alone and never held during I/O. A Selector and a Learner belong to one caller at a time.
package sizeclass
