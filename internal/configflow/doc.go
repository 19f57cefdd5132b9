// Package configflow keeps what deciders know of limits up to date, whatever becomes of the news.
//
//	commit ─┬─ the namespace's epoch ──── polled ──────────┐
//	        └─ the store tells (Redis) ── each key, once ──┤
//	                                                       ▼
//	            caches: what changed is read anew from the store, and kept until that succeeds
//	                                                       ▼
//	            the file: what was last known, for a start without the store
//
// News say what changed, never what it became: what a decider goes by is read from the store, so that news which are
// late, doubled or in the wrong order cost a read and never bring an older value back. News that are lost are made up for
// by the poll, which compares epochs.
//
// A [Mirror] brings the configuration of one store to the store of a cell, where the cell's deciders find it.
package configflow
