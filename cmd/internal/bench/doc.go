// Package bench measures rouse against baselines of the same run: the figures of
// docs/performance.md.
//
// Each measurement alternates passes of rouse with passes of what it is held against (a bare loop,
// bare SQLite, a floor program with the same libraries), and reports the median of the ratios.
// What must not be measured, or must be suspended, runs in a process of its own (Child).
//
// # Size
//
// The package has more than forty files because each measurement has one or more, by its name, with its test; what they share is in
// measure.go and, of a home with many runs, in home_fill.go; nothing of one is used by another.
package bench
