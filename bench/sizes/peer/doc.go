// Package peer chooses size classes as Buildbarn's feedback-driven analyzer does according to its
// public description (ADR 7, 2021, and the comments of its scheduler's configuration). It serves as
// a comparison, and uses the recommended settings.
//
//   - On a smaller class an action may take as long as on the largest class, times the ratio of the
//     sizes to the power of Exponent. Slower successes count as failures.
//   - Each pair of classes is compared as in the Mann-Whitney test: how likely is a run on one class
//     faster than a run on the other? Times on smaller classes are divided by the acceptable time,
//     failures are slower than any success, and each class has one fictitious run of each outcome in
//     addition. The result is a stochastic matrix. Its stationary distribution, as in PageRank, has
//     the probability with which the action starts on each class.
//   - A run on the largest class hides a failure on a smaller class.
//   - If most runs on a class fail, the action runs on the largest class, and afterwards in the
//     background on the failing class, to learn. A class without outcomes next to a class that
//     mostly fails is tried in the same way.
//   - An action that never succeeded on the largest class runs on each smaller class in turn, with
//     the shortest timeout.
//   - After a failure on the largest class the action starts there for a day.
package peer
