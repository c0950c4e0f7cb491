// Package spill decides when a task that waits for workers of a size class should use an idle
// worker of a larger one, or of another pool.
//
// An action that takes t on class s, and no less on a larger class L, must wait w for a worker of
// s. Its cost, delay^(1-x) · cost^x as in package sizeclass, is less on L if
//
//	t^(1-x) · (L·t)^x  <  (w+t)^(1-x) · (s·t)^x,  that is  w/t + 1  >  (L/s)^(x/(1-x))
//
// So the wait counts in turns, each as long as an action takes, and the number of turns that are
// worth a larger worker depends on the classes alone: with x = 0.5, as many as L is times larger,
// less one. The wait is estimated from the number of waiting tasks for each worker, and it is also
// measured: a task that has waited so long should not have waited (the ski rental rule), so that no
// error of the estimate costs much.
//
// Workers of another pool have properties that the action does not ask for, or lack some that it
// asks for. One such property counts as much as a class twice as large. A worker that suits the
// action as well as those of its own pool is worth no wait.
//
// Package core has the waiting tasks, and moves them. This package has no clock, and keeps only a
// Load.
package spill
