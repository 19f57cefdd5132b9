// Package report holds what the reports of the lab share: histograms, intervals of time, the search for the limit that
// is enough, and documents, which a terminal prints and a page shows.
package report
