// Package spill says when what waits for workers of a size class is worth an idle worker of a larger one, or of another pool.
//
// An action that takes t on class s, and no less on a larger class L, has to wait w for a worker of s. What it costs,
// delay^(1-x) · cost^x as in package sizeclass, is less on L if
//
//	t^(1-x) · (L·t)^x  <  (w+t)^(1-x) · (s·t)^x,  that is  w/t + 1  >  (L/s)^(x/(1-x))
//
// So the wait counts in turns, each as long as an action takes, and how many are worth a larger worker depends on the
// classes alone: with x = 0.5, as many as L is times larger, less one. The wait is expected, from how many wait for each worker,
// and it is seen: what has waited for so long has been wrong to wait (the rule of those who rent skis), so that
// no error in what was expected costs much.
//
// Workers of another pool have properties for which the action does not ask, or know nothing of some that it asks for. One such property
// counts as much as a class twice as large. A worker that is as good as the own ones is worth no wait.
//
// It is package core that knows what waits, and moves it. Nothing here has a clock, and all that is kept is a Load.
package spill
