// Package arch holds the rules of the source tree as tests: which package may import which (floors_test.go), what it
// may link of other modules (rules_test.go), what every source file must do for its readers (source_test.go), what a
// tracked file must not contain (tracked_test.go), and what the linker must still be able to prune (prune_test.go).
//
// Each rule is a function from facts to violations. One test feeds it the tree and another feeds it a violation, so
// that no check is one that cannot fail.
package arch
