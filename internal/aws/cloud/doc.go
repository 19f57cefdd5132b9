// Package cloud describes weir's resources on AWS: the table, the functions on its stream, policies and alarms; the
// parts of a cell; the floor at the edge. One description is rendered as CloudFormation and as Terraform.
//
// Everything is decided when a template is generated, so the template shows what it does: it has no conditions, and
// no parameters except the location of the functions' code. The same parameters always produce the same bytes.
package cloud
