// Package release tests what a release consists of: the programs of make dist, and the image that the Containerfile
// makes of one.
package release
