// Package configflow keeps deciders' knowledge of limits up to date, even if notifications are lost.
//
//	commit ─┬─ the namespace's epoch ────── polled ────────┐
//	        └─ the store notifies (Redis) ─ each key, once ┤
//	                                                       ▼
//	            caches: reread what changed from the store, and keep it until that succeeds
//	                                                       ▼
//	            the file: the last known configuration, for a start without the store
//
// A notification names the record that changed, never its new value. Deciders read values from the store, so a
// notification that is late, duplicated or out of order costs a read and never brings back an older value. Polling,
// which compares epochs, makes up for lost notifications.
//
// A [Mirror] copies the configuration of one store to the store of a cell, where the cell's deciders find it.
package configflow
