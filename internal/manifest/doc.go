// Package manifest is limits as code: a YAML file declares what a namespace's limits and entities are to be; a plan
// says how the live ones differ and what becomes of whom; applying it makes them so. docs/guide/manifests.md is the
// manual, schema.json the format for editors.
//
// A file is decoded as a whole before anything is asked of a store, and every mistake in it is reported at once, with
// its place. What is declared is a set of records: an entity, or the limits of a scope. A record carries the name of
// the manifest that declares it, so that a plan compares values of live records and nothing else: what was declared
// and is no more is removed, what never was is left alone.
package manifest
