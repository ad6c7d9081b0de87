"""THE registry of pages. Routes, JSON twins, the menu, the OpenAPI document and the browser tests come from it."""

from __future__ import annotations

from headrace.console.pages import (
    certificates,
    cluster_operations,
    group,
    groups,
    overview,
    quotas,
    record,
    record_search,
    record_tail,
    records,
    security,
    sql,
    topic,
    topics,
    transactions,
    users,
    view,
    view_comparison,
    view_rows,
    views,
)
from headrace.console.pages.page import Page

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    topics.PAGE,
    topic.PAGE,
    records.PAGE,
    record.PAGE,
    record_search.PAGE,
    record_tail.PAGE,
    groups.PAGE,
    group.PAGE,
    cluster_operations.PAGE,
    transactions.PAGE,
    security.PAGE,
    users.PAGE,
    quotas.PAGE,
    certificates.PAGE,
    views.PAGE,
    view.PAGE,
    view_comparison.PAGE,
    view_rows.ROWS_PAGE,
    view_rows.ROW_PAGE,
    sql.PAGE,
)

#: The pages of the menu.
NAVIGATION: tuple[Page, ...] = tuple(page for page in PAGES if page.navigation)
