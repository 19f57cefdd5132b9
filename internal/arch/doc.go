// Package arch holds the rules of the tree as tests: who may link whom (imports_test.go, its table in rules_test.go),
// what a source file owes its readers (source_test.go), what a tracked file must not say (tracked_test.go) and what the
// linker must still be able to prune (prune_test.go).
//
// Each rule is a function from facts to violations, fed with the tree by one test and with a violation by another, so
// that none is a check that cannot fail.
package arch
