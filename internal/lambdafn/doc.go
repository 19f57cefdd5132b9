// Package lambdafn is what weir does as a Lambda function beside counting usage: it applies manifests for callers
// without rights to the table, by hand or as a resource of CloudFormation. docs/guide/lambda.md is the manual.
package lambdafn
