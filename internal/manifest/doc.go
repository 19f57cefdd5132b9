// Package manifest implements limits as code. A YAML file declares the limits and entities of a namespace, a plan
// shows how the live ones differ and whom the changes affect, and applying the plan makes the changes.
// docs/configure/manifests.md is the manual, schema.json the format for editors.
//
// A file is decoded as a whole before the store is asked for anything, and all its mistakes are reported at once,
// each with its place. It declares a set of records: an entity, or the limits of a scope. Each live record carries
// the name of the manifest that declares it, so a plan compares only the values of live records. A record that is no
// longer declared is removed; one that never was is left alone.
package manifest
