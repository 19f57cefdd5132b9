// Package stack holds weir's CloudFormation templates: the table with everything around it, a cell, a floor at the edge
// and a gate for rollouts. A template's parameters are the flags of the commands that deploy it, and the deployed stack
// keeps their values.
package stack
