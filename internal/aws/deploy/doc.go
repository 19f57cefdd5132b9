// Package deploy creates weir's stack on AWS, updates it to this version of weir, inspects it and destroys it.
//
// Every change is a change set of CloudFormation, which is shown before it is executed:
//
//	none ── change set ─ REVIEW_IN_PROGRESS ── execute ─ CREATE_COMPLETE ── change set, execute ─ UPDATE_COMPLETE
//	                            └ dry run, refused, or nothing to do: change set and empty stack are deleted
//
// The parameters of a deployment are stored in the metadata of its template. An update, from any machine, therefore
// changes only what is requested. Commands that only inspect make no call that writes.
package deploy
