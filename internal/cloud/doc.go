// Package cloud describes what weir has on AWS: the table, the functions on its stream, policies, alarms; the parts of a
// cell; the floor at the edge. One description is rendered as CloudFormation and as Terraform.
//
// All is decided when a template is made, so that it shows what it does: it has no conditions, and no parameters but the
// place of the functions' code. Two templates from the same parameters are the same bytes.
package cloud
