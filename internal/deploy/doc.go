// Package deploy brings weir's stack to AWS, keeps it at this weir's version, looks at it and takes it away.
//
// Every change is a change set of CloudFormation, which is shown before it is executed:
//
//	none ── change set ─ REVIEW_IN_PROGRESS ── execute ─ CREATE_COMPLETE ── change set, execute ─ UPDATE_COMPLETE
//	                            └ dry run, refused, or nothing to do: change set and empty stack are deleted
//
// What a stack was deployed with stands in the metadata of its template, so that an update changes what it is told to and
// leaves the rest, whichever machine it comes from. What only looks makes no call that writes.
package deploy
